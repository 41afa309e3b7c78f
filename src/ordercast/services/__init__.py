"""What applications build on ordered messages: state that is kept by several nodes."""
