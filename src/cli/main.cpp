#include "cli/app.h"

int main(int argc, char** argv) { return lockstep::run_app(argc, argv); }
