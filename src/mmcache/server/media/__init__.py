"""Media in requests: what it is (`parts`), where it comes from (`fetch`), how little of it is sent (`uuids`)."""
