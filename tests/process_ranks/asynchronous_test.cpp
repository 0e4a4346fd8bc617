// The claims of tests/comm/asynchronous_test.cpp, over processes. (One of them counts ranks in a variable that threads
// share; overlap_test.cpp has that claim for processes.)
#include "../comm/asynchronous_test.cpp"  // NOLINT: its tests are this program's too
