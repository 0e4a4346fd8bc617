// The transport's MPI objects; included by its own files alone.
#pragma once
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // MPI in C++ is long gone from the standard, and would have to be linked
#endif
#include <mpi.h>

#include <map>

#include "comm/mpi/transport.h"

namespace lockstep::mpi {

struct Transport::State {
  std::vector<MPI_Request> requests = {};
  std::vector<std::shared_ptr<Completion>> completions = {};  // of each request
  std::map<std::uint64_t, MPI_Comm> groups = {};              // that MPI has been told of
  std::vector<char> notice_bytes = {};                        // where a notice comes in
  MPI_Request listening = MPI_REQUEST_NULL;
};

// Throws EnvironmentError in MPI's words.
void check_mpi(int code, const char* call);

}  // namespace lockstep::mpi
