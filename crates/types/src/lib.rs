//! What is a value? SQL types, their text and binary forms, their order, row and key encodings, errors.
