"""When a near hit may be trusted: learned from outcomes, promised with an anytime-valid bound. Pure."""
