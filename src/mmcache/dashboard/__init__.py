"""`dashboard`: a page that says why the hit rate fell; takes OTLP, keeps it in DuckDB."""
