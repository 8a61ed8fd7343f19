"""mmcache: an adaptive cache for multimodal inference."""
