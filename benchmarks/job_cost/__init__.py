"""What listening takes from the work of an eight-query job."""
