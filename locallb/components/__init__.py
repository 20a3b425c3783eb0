"""A stack's desired resources, declared to Pulumi; and components for programs that set clusters up."""
