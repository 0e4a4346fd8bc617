// Messages between hosts by MPI, and MPI's own collectives: the only code that calls MPI.
//
// All MPI calls are made by the progress thread: post(), tell() and start_native() queue what is wanted and wake it.
#pragma once
#include <deque>
#include <mutex>

#include "comm/processes/transport.h"

namespace lockstep::mpi {

using processes::Completion;
using processes::FailureNotice;
using processes::Transfer;

// Whether MPI has a collective for this call.
bool has_native(const Message& message, int ranks);

class Transport final : public processes::Transport {
 public:
  using Tag = int;
  static constexpr Tag kNotices = 1;

  // Initialises MPI, in the thread that calls it, which is the progress thread from then on.
  Transport();
  ~Transport() override;
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> gather(const std::string& mine) override;
  void set_wakeup(processes::Wakeup& wakeup) override { wakeup_ = &wakeup; }
  void listen(OnNotice on_notice) override;
  void connect(const processes::RankHosts&) override {}  // MPI has

  std::shared_ptr<Completion> post(std::vector<Transfer> transfers, std::shared_ptr<void> holds) override;
  void tell(const std::vector<int>& ranks, const FailureNotice& notice) override;
  bool has_native(const Message& call, int ranks) const override { return mpi::has_native(call, ranks); }
  std::shared_ptr<Completion> start_native(const Message& call, bool in_place, const std::vector<int>& members,
                                           std::uint64_t group) override;
  bool poll() override;
  bool is_polled() const override { return true; }
  bool idle() override;
  void finalize() override;

 private:
  struct State;  // what MPI's types are needed for
  struct Wanted {
    std::vector<Transfer> transfers;
    std::function<void(State&)> native;
    std::shared_ptr<Completion> completion;
  };
  std::shared_ptr<Completion> queue(Wanted wanted);

  int rank_ = 0, size_ = 1;
  processes::Wakeup* wakeup_ = nullptr;
  OnNotice on_notice_;
  std::unique_ptr<State> state_;
  std::mutex mutex_;
  std::deque<Wanted> queue_;
};

}  // namespace lockstep::mpi
