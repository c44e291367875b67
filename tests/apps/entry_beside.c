// A library that only the RUNPATH of one other library leads to.
const char *private_marker(void) { return "beside"; }
