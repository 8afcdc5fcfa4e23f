"""The screen: the only room that knows streamlit."""
