// What goes from some ranks to others unchanged: all_gather, broadcast, gather, scatter, all_to_all; and a barrier, in
// which nothing goes.
//
// Every rank puts a fragment of what it gives into its slot, block by block, and takes what is for it from the others'
// slots; with several hosts the leaders bring the blocks that another host's ranks want into that host's inbox.
#pragma once
#include "comm/parts.h"
#include "comm/processes/collective_plan.h"

namespace lockstep::processes {

class SpreadPlan final : public CollectivePlan {
 public:
  SpreadPlan(ProcessGroup& group, const Message& message, PlanContext context);
  std::int64_t steps() const override;
  bool run(std::int64_t step, std::uint64_t phase) override;
  void set_records(const std::vector<const char*>& records) override;

 private:
  static constexpr int kAll = -1;
  struct Block {
    int to;                   // a rank, or all
    std::int64_t from, into;  // elements of the giver's in, and of the taker's out
    std::int64_t count;
    std::int64_t place;  // in the slot, in bytes
  };
  // What a rank gives with a fragment. Of an all_to_all of other ranks, known when their calls are.
  std::vector<Block> blocks(int giver, std::int64_t fragment) const;
  std::int64_t given(int from, int to) const;  // elements of an all_to_all
  void put(std::int64_t fragment, char* slot) const;
  void take(std::int64_t fragment, std::uint64_t from) const;
  void keep_own() const;
  void add_messages(std::int64_t fragment);

  const std::int64_t size_;  // bytes of an element
  const Parts parts_;
  std::int64_t each_ = 0;  // elements of a block
  std::int64_t fragments_ = 1;
  std::vector<std::vector<std::int64_t>> counts_;  // of an all_to_all, by giver
};

}  // namespace lockstep::processes
