"""The door for anything that speaks OpenAI's protocol: `mmcache serve`. Imported by nothing but the command line."""
