// The claims of tests/comm/collectives_test.cpp, over processes.
#include "../comm/collectives_test.cpp"  // NOLINT: its tests are this program's too
