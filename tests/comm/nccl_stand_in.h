// Thread ranks in NCCL's place: a Library whose links are groups of a world of threads, on the cpu.
//
// It is as strict as NCCL: a call before the last one has settled breaks the test.
#pragma once
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "comm/nccl/communicator.h"
#include "support/devices.h"
#include "support/every_op.h"

namespace lockstep::tests {

// Where the links of all ranks of a test meet: a world of thread ranks for each id.
struct Exchange {
  std::mutex mutex;
  int ids = 0;
  std::map<int, std::unique_ptr<ThreadsWorld>> worlds;
  std::atomic<bool> cut = false;  // every link fails from now on
  std::atomic<int> settled = 0;   // calls, or groups of them, that were seen through
};

// One that takes its time: calls are done when they have been asked for often enough and the others have come.
class StandInLink final : public nccl::Link {
 public:
  StandInLink(Exchange& exchange, const nccl::LinkSpec& spec) : exchange_(exchange) {
    const std::lock_guard lock(exchange.mutex);
    auto& world = exchange.worlds[spec.id[0] + 128 * spec.id[1]];
    if (!world) world = std::make_unique<ThreadsWorld>(spec.ranks, ThreadsOptions{.deadline_seconds = 60});
    comm_ = world->communicator(spec.rank);
  }
  ~StandInLink() override { abort(); }

  bool settled() override {
    if (exchange_.cut) throw CommError("the wire is cut", true);
    if (connecting_ > 0) return --connecting_, false;
    for (auto& one : pending_)
      if (!one->done()) return false;
    for (auto& one : pending_) one->wait();
    if (!pending_.empty()) ++exchange_.settled;
    pending_.clear();
    return true;
  }
  void begin_group() override { grouped_ = true; }
  void end_group() override { grouped_ = false; }
  void send(const ConstTensor& x, int to, Stream&) override { add(comm_->send(x, to)); }
  void recv(const Tensor& x, int from, Stream&) override { add(comm_->recv(x, from)); }
  void all_gather(const Tensor& out, const ConstTensor& in, Stream&) override { add(comm_->all_gather(out, in)); }
  void broadcast(const Tensor& out, const ConstTensor& in, int root, Stream&) override {
    add(comm_->start(
        {.op = CommOp::broadcast, .out = out, .in = root == comm_->rank() ? in : ConstTensor{}, .peer = root}));
  }
  void all_reduce(const Tensor& out, const ConstTensor& in, Reduction reduction, Stream&) override {
    add(comm_->start({.op = CommOp::all_reduce, .out = out, .in = in, .reduction = reduction}));
  }
  void reduce_scatter(const Tensor& out, const ConstTensor& in, Reduction reduction, Stream&) override {
    add(comm_->reduce_scatter(out, in, {.reduction = reduction}));
  }
  void reduce(const Tensor& out, const ConstTensor& in, Reduction reduction, int root, Stream&) override {
    add(comm_->reduce(out, in, root, {.reduction = reduction}));
  }
  void abort() noexcept override {
    pending_.clear();
    comm_.reset();
  }

 private:
  void add(std::unique_ptr<Pending> one) {
    // NCCL forbids it: the call before may not be in the stream yet.
    LOCKSTEP_CHECK(grouped_ || pending_.empty(), "a call before the last one has settled");
    pending_.push_back(std::move(one));
  }

  Exchange& exchange_;
  std::unique_ptr<Communicator> comm_;
  std::vector<std::unique_ptr<Pending>> pending_;
  bool grouped_ = false;
  int connecting_ = 3;
};

class StandIn final : public nccl::Library {
 public:
  explicit StandIn(Exchange& exchange, double closing = 0) : exchange_(exchange), closing_(closing) {}
  ~StandIn() override { std::this_thread::sleep_for(std::chrono::duration<double>(closing_)); }
  nccl::Id make_id() override {
    const std::lock_guard lock(exchange_.mutex);
    nccl::Id id{};
    id[0] = static_cast<char>(exchange_.ids % 128);
    id[1] = static_cast<char>(exchange_.ids++ / 128);
    return id;
  }
  std::unique_ptr<nccl::Link> connect(const nccl::LinkSpec& spec) override {
    return std::make_unique<StandInLink>(exchange_, spec);
  }
  void enter_thread() override {}

 private:
  Exchange& exchange_;
  double closing_;  // seconds
};

struct Here {
  Communicator& comm;
  CpuDevice& cpu;
  Exchange& exchange;
};

inline void each_nccl_rank(int ranks, const std::function<void(const Here&)>& body, nccl::Options options = {}) {
  Exchange exchange;
  each_rank(ranks, [&](Communicator& threads) {
    CpuDevice cpu;
    StandIn library(exchange);
    const nccl::Share share = [&](std::span<const char> mine) {
      std::vector<char> bytes(mine.begin(), mine.end());
      Row row(DType::i32, static_cast<std::int64_t>(bytes.size()) / 4);
      std::memcpy(static_cast<Tensor>(row).raw(), bytes.data(), bytes.size());
      threads.broadcast(row, 0)->wait();
      std::memcpy(bytes.data(), row.bytes().data(), bytes.size());
      return bytes;
    };
    const auto comm =
        nccl::make_communicator(library, {threads.rank(), ranks}, share, cpu.memory(), cpu.stream(), options);
    body({*comm, cpu, exchange});
  });
}

}  // namespace lockstep::tests
