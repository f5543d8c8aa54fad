"""The first screen: the header and what stands out."""
