"""Faster ways to compute what the modules beside this folder define. Without it everything works, only slower."""
