"""The output `status`: addresses, ports and conditions in the object's own status."""
