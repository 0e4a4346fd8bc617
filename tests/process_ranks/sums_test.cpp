// The claims of tests/comm/sums_test.cpp, over processes.
#include "../comm/sums_test.cpp"  // NOLINT: its tests are this program's too
