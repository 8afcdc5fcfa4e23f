"""One life of an instance: start, load weights, serve, drain, fail, recover, change role."""
