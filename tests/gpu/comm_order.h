// What any communicator on a GPU must do with streams: claims about order, tried by ranks that are threads
// (comm_test.cpp) and by ranks that are processes (nccl_test.cpp).
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "comm/communicator.h"
#include "kernels/elementwise.h"
#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"
#include "tensor/transfer.h"

namespace lockstep::tests {

// One rank's memory and compute stream on the GPU.
class GpuRank {
 public:
  explicit GpuRank(std::int64_t arena_bytes) : memory_(make_memory(Device::cuda, ledger_, arena_bytes)) {}

  Ledger& ledger() { return ledger_; }
  Memory& memory() { return *memory_; }
  Stream& stream() { return *stream_; }
  Tensor take(DType dtype, std::int64_t elements) {
    kept_.push_back(memory_->allocate(std::max<std::int64_t>(1, elements * size_of(dtype)), Tag::data));
    return view(kept_.back(), dtype, {elements});
  }
  // Work for the compute stream that takes so many times about 0.3 milliseconds on an H200.
  void be_busy(int times) {
    if (busy_.none()) busy_ = take(DType::f32, std::int64_t{1} << 28);
    for (int i = 0; i < times; ++i) fill({.y = busy_, .value = static_cast<double>(i)}, stream());
  }

 private:
  Ledger ledger_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Stream> stream_ = make_stream(*memory_, 1);
  std::vector<Buffer> kept_;
  Tensor busy_;
};
inline constexpr std::int64_t kOrderArena = (std::int64_t{1} << 30) + (std::int64_t{512} << 20);  // what these need

inline void expect_all(const Tensor& x, double want, Stream& stream, const char* what) {
  std::vector<float> got(static_cast<std::size_t>(x.elements()));
  download(got.data(), x, stream);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != static_cast<float>(want)) {
      ADD_FAILURE() << what << ": element " << i << " is " << got[i] << ", expected " << want;
      return;
    }
}

// An operation sees what the compute stream was given before start(), however late that is done; what the stream is
// given after wait() sees its result, and harms no other rank; and the host waits for none of it.
inline void expect_order_with_compute(Communicator& comm, GpuRank& rank) {
  constexpr std::int64_t n = 4 << 20;
  const Tensor in = rank.take(DType::f32, n), out = rank.take(DType::f32, n), twice = rank.take(DType::f32, n);
  fill({.y = in, .value = 0}, rank.stream());
  comm.start({.op = CommOp::all_reduce, .out = out, .in = in})->wait();  // makes connections
  rank.stream().synchronize();
  for (int round = 0; round < 3; ++round) {
    fill({.y = in, .value = NAN}, rank.stream());
    fill({.y = out, .value = NAN}, rank.stream());
    rank.be_busy(comm.rank() == round % comm.size() ? 300 : 100);
    const auto worked = rank.stream().make_event();
    fill({.y = in, .value = comm.rank() + round + 1.0}, rank.stream());
    rank.stream().record(*worked);
    const auto pending = comm.start({.op = CommOp::all_reduce, .out = out, .in = in});
    pending->wait();
    EXPECT_FALSE(worked->done()) << "the host waited for the compute stream";
    EXPECT_FALSE(pending->done()) << "done before it could begin";
    fill({.y = in, .value = NAN}, rank.stream());
    add({.y = twice, .a = out, .b = out}, rank.stream());
    const int size = comm.size();
    expect_all(twice, 2.0 * (size * (round + 1) + size * (size - 1) / 2), rank.stream(), "the sum");
    EXPECT_TRUE(pending->done());
  }
}

// What was started runs while the compute stream does something else. Ranks that share a GPU take its turns, so one
// time of several is enough.
inline void expect_beside_compute(Communicator& comm, GpuRank& rank) {
  const Tensor x = rank.take(DType::f32, 1 << 20);
  bool beside = false;
  for (int attempt = 0; attempt < 5; ++attempt) {  // as many on every rank
    fill({.y = x, .value = 1}, rank.stream());
    comm.all_reduce(x)->wait();
    rank.be_busy(1);
    rank.stream().synchronize();
    const auto pending = comm.all_reduce(x);
    rank.be_busy(900);
    const auto worked = rank.stream().make_event();
    rank.stream().record(*worked);
    while (!pending->done() && !worked->done()) {
    }
    beside = beside || !worked->done();
    pending->wait();
    expect_all(x, static_cast<double>(comm.size()) * comm.size(), rank.stream(), "the sum of sums");
  }
  EXPECT_TRUE(beside) << "the operation took as long as all the other work";
}

// Many at once, waited for out of order; and one after the other on the same elements.
inline void expect_many_in_flight(Communicator& comm, GpuRank& rank) {
  constexpr int kOps = 24;
  std::vector<Tensor> rows;
  for (int op = 0; op < kOps; ++op) rows.push_back(rank.take(DType::f32, 10007 * (op % 5)));
  for (int op = 0; op < kOps; ++op)
    if (rows[static_cast<std::size_t>(op)].elements() > 0)
      fill({.y = rows[static_cast<std::size_t>(op)], .value = comm.rank() + 10.0 * op}, rank.stream());
  std::vector<std::unique_ptr<Pending>> pending;
  for (const Tensor& row : rows) pending.push_back(comm.all_reduce(row));
  for (int i = 0; i < kOps; ++i) pending[static_cast<std::size_t>((i * 5 + comm.rank()) % kOps)]->wait();
  const int size = comm.size();
  for (int op = 0; op < kOps; ++op)
    expect_all(rows[static_cast<std::size_t>(op)], 10.0 * op * size + size * (size - 1) / 2, rank.stream(),
               "one of many");
  const Tensor x = rank.take(DType::f32, 70001);
  fill({.y = x, .value = 1}, rank.stream());
  std::vector<std::unique_ptr<Pending>> chain;
  for (int i = 0; i < 6; ++i) chain.push_back(comm.all_reduce(x));
  chain.back()->wait();
  expect_all(x, std::pow(size, 6), rank.stream(), "one after the other");
}

}  // namespace lockstep::tests
