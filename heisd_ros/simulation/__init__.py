"""LIBERO as the robot: environment, scripted expert, demonstrations, closed-loop episodes."""
