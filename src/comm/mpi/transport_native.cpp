// MPI's own collectives. Their sums are in MPI's order; what has no type or operation of MPI's (16-bit floats, a mean,
// uneven exchanges of all with all) is done as `canonical` is.
#include <climits>
#include <cstring>

#include "comm/mpi/transport_state.h"
#include "comm/parts.h"

namespace lockstep::mpi {

namespace {

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return MPI_DOUBLE;
    case DType::f32:
      return MPI_FLOAT;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i64:
      return MPI_INT64_T;
    default:
      return MPI_UINT16_T;  // moved, never summed
  }
}

// What MPI reads while the operation lasts, besides the tensors.
struct Held {
  std::vector<int> counts, begins;
  std::vector<char> in;  // a copy, where in and out overlap and MPI has no place for that
};

bool overlap(const Message& m) {
  if (!m.in || !m.out) return false;
  const char *in = static_cast<const char*>(m.in.raw()), *out = static_cast<const char*>(m.out.raw());
  return in < out + m.out.bytes() && out < in + m.in.bytes();
}

}  // namespace

bool has_native(const Message& m, int ranks) {
  if (m.op == CommOp::all_to_all || m.op == CommOp::barrier || point_to_point(m.op)) return false;
  if (count_of(m, ranks) * 8 > INT_MAX) return false;
  const DType dtype = dtype_of_message(m);
  return !reduces(m.op) || (m.reduction != Reduction::mean && dtype != DType::bf16 && dtype != DType::f16);
}

std::shared_ptr<Completion> Transport::start_native(const Message& call, bool in_place, const std::vector<int>& members,
                                                    std::uint64_t group) {
  auto completion = std::make_shared<Completion>();
  auto held = std::make_shared<Held>();
  completion->left = 1;
  completion->holds = held;
  const auto begin = [m = call, in_place, members, group, completion, held, this](State& state) {
    MPI_Comm comm = MPI_COMM_WORLD;
    if (static_cast<int>(members.size()) != size_) {
      const auto [known, added] = state.groups.try_emplace(group, MPI_COMM_NULL);
      if (added) {
        MPI_Group all, some;
        MPI_Comm_group(MPI_COMM_WORLD, &all);
        MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
        check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, some, static_cast<int>(group % (1 << 28)), &known->second),
                  "MPI_Comm_create_group");
        MPI_Group_free(&some);
        MPI_Group_free(&all);
      }
      comm = known->second;
    }
    const int ranks = static_cast<int>(members.size());
    const std::int64_t n = count_of(m, ranks);
    const bool cut = m.op == CommOp::reduce_scatter || m.op == CommOp::all_gather || m.op == CommOp::gather ||
                     m.op == CommOp::scatter;
    if (cut) {
      const Parts parts(n, ranks, m.counts);
      for (int rank = 0; rank < ranks; ++rank) {
        held->counts.push_back(static_cast<int>(parts.size(rank)));
        held->begins.push_back(static_cast<int>(parts.begin(rank)));
      }
    }
    const void* in = m.in.raw();
    void* out = m.out.raw();
    if (in_place && m.op == CommOp::scatter) {
      out = MPI_IN_PLACE;
    } else if (in_place) {
      in = MPI_IN_PLACE;
    } else if (overlap(m)) {
      held->in.assign(static_cast<const char*>(in), static_cast<const char*>(in) + m.in.bytes());
      in = held->in.data();
    }
    const DType dtype = dtype_of_message(m);
    const MPI_Datatype type = type_of(dtype);
    const MPI_Op sum = m.reduction == Reduction::max ? MPI_MAX : MPI_SUM;
    const int count = static_cast<int>(n), gives = m.in ? static_cast<int>(m.in.elements()) : 0,
              gets = m.out ? static_cast<int>(m.out.elements()) : 0;
    const int *counts = held->counts.data(), *begins = held->begins.data();
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
    switch (m.op) {
      case CommOp::all_reduce:
        code = MPI_Iallreduce(in, out, count, type, sum, comm, &request);
        break;
      case CommOp::reduce_scatter:
        code = MPI_Ireduce_scatter(in, out, counts, type, sum, comm, &request);
        break;
      case CommOp::reduce:
        code = MPI_Ireduce(in, out, count, type, sum, m.peer, comm, &request);
        break;
      case CommOp::all_gather:
        code = MPI_Iallgatherv(in, gives, type, out, counts, begins, type, comm, &request);
        break;
      case CommOp::gather:
        code = MPI_Igatherv(in, gives, type, out, counts, begins, type, m.peer, comm, &request);
        break;
      case CommOp::scatter:
        code = MPI_Iscatterv(in, counts, begins, type, out, gets, type, m.peer, comm, &request);
        break;
      default: {  // broadcast
        int rank = 0;
        MPI_Comm_rank(comm, &rank);
        const bool root = rank == m.peer;
        if (root && m.out && out != m.in.raw()) std::memcpy(out, m.in.raw(), static_cast<std::size_t>(m.in.bytes()));
        code = MPI_Ibcast(root ? const_cast<void*>(m.in.raw()) : out, count, type, m.peer, comm, &request);
      }
    }
    check_mpi(code, "MPI's own collective");
    state.requests.push_back(request);
    state.completions.push_back(completion);
  };
  return queue({{}, begin, completion});
}

}  // namespace lockstep::mpi
