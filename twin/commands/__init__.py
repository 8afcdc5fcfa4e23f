"""Commands of the command line, by subject; `twin/__main__.py` names them."""
