// What the wire keeps of MPI; included by the wire's own files alone.
#pragma once
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // MPI in C++ is long gone from the standard, and would have to be linked
#endif
#include <mpi.h>

#include <map>

#include "comm/mpi/wire.h"

namespace lockstep::mpi {

struct Wire::State {
  std::vector<MPI_Request> requests = {};
  std::vector<std::shared_ptr<Ticket>> tickets = {};  // of each request
  std::map<std::uint64_t, MPI_Comm> groups = {};      // that MPI has been told of
  std::vector<char> heard = {};                       // where a notice comes in
  MPI_Request listening = MPI_REQUEST_NULL;
};

// Throws EnvironmentError in MPI's words.
void check_mpi(int code, const char* call);

}  // namespace lockstep::mpi
