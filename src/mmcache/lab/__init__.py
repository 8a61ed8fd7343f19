"""The laboratory: one file a table, replayed through the product's own objects."""
