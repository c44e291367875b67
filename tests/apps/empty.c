// A library with nothing in it.
int nothing_in_it;
