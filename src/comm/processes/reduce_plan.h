// Sums over ranks: all_reduce, reduce_scatter, reduce.
//
// The elements are split into one piece per rank, its owner, who sums it (in a reduce-scatter the rank's own part). A
// fragment is K elements of every piece. On one host a rank
//
//   puts   its elements of the others' pieces into its slot,
//   sums   its own piece, from its own tensor and the others' slots, into its own tensor and its slot,
//   takes  the other sums from the slots of their owners.
//
// With several hosts, between putting and summing, the ranks of a host sum ("fold") those parts of other hosts' pieces
// that their host can sum alone (placement.h); the leaders exchange the results, and later the sums. What a small
// all_reduce needs is put as a whole and summed by every rank for itself, which saves a barrier.
//
// In a slot: the pieces put, N times K elements; the sum, K; partial sums, K each, wide.
#pragma once
#include "comm/parts.h"
#include "comm/processes/collective_plan.h"

namespace lockstep::processes {

class ReducePlan final : public CollectivePlan {
 public:
  ReducePlan(ProcessGroup& group, const Message& message, PlanContext context);
  std::int64_t steps() const override;
  bool run(std::int64_t step, std::uint64_t phase) override;

 private:
  struct Range {
    std::int64_t begin, count;  // elements, of the whole
  };
  struct Fold {
    int piece;
    int operand;     // of the piece's order
    int local_rank;  // whose work it is
    int place;       // among the partial sums in that rank's slot
  };
  enum Stage : std::int64_t { put_stage, fold_stage, give_stage, sum_stage, spread_stage, take_stage };

  bool scatters() const { return message_.op == CommOp::reduce_scatter; }
  // Whether the rank gets the sums of all pieces.
  bool wants_sums(int rank) const {
    return message_.op == CommOp::all_reduce || (message_.op == CommOp::reduce && message_.peer == rank);
  }
  Range range(int piece, std::int64_t fragment) const;
  const SumOrder& order_of(int piece) const;
  const std::vector<Operand>& operands(int piece) const;
  std::int64_t operand_bytes(const Operand& operand, std::int64_t elements) const;
  char* partial(std::uint64_t phase, const Fold& fold) const;

  void put(std::int64_t fragment, char* slot) const;
  void sum(std::int64_t fragment, std::uint64_t from, char* slot);
  void sum_small(std::uint64_t from);
  void take(std::int64_t fragment, std::uint64_t from) const;
  bool stage(Stage stage, std::int64_t fragment);
  void fold(std::int64_t fragment);
  void add_gifts(std::int64_t fragment);
  void add_sums(std::int64_t fragment);
  void each_gift(const std::function<void(int piece, int operand, std::int64_t place)>& each) const;
  void sum_of_hosts(std::int64_t fragment);

  const DType dtype_;
  const std::int64_t size_, wide_;  // bytes of an element, and of a partial sum's
  const std::int64_t elements_;
  const Parts parts_;
  bool small_ = false;
  std::int64_t each_ = 0;  // K
  std::int64_t fragments_ = 1;
  std::vector<SumOrder> orders_;                // one, or one for each piece
  std::vector<std::vector<Operand>> operands_;  // of each order
  std::vector<Fold> folds_;                     // of this host
};

}  // namespace lockstep::processes
