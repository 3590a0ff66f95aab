"""What listening takes of the CPU of a driver with eight queries."""
