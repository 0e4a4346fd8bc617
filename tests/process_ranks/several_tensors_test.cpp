// The claims of tests/comm/several_tensors_test.cpp, over processes.
#include "../comm/several_tensors_test.cpp"  // NOLINT: its tests are this program's too
