"""One module a framework; import the one you use, its framework comes with the extra of the same name."""
