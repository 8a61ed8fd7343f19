"""The parts of table `gateways`: one stream of chat requests, a real model behind it, and several caches in front."""
