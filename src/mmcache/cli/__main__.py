"""`python -m mmcache.cli`: the command line where the `mmcache` script is not on the path."""

import sys

from mmcache.cli import main

sys.exit(main())
