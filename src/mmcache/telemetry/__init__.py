"""`telemetry`: spans and metrics of a cache, by OpenTelemetry's names."""
