//! libgpucap.so.
