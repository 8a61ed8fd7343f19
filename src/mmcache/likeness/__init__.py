"""How like two inputs of one modality are: pictures, sounds, words. Pure; vectors and arrays in, a verdict out."""
