// What tests of failures share, whoever finds the failure: a backend (failure_test.cpp), or the control plane above a
// backend that does not look (guarded_test.cpp).
#pragma once
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "comm/ranks.h"

namespace lockstep::tests {

inline double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline void nap(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Rank 2 of 3 calls something else than the others, on a row of 12 fp32; all of them are told both calls.
struct MismatchCase {
  using Call = std::function<Communicator::Started(Communicator&, Row&)>;
  const char* name;
  Call others, odd;
  const char* others_called;
  const char* odd_called;

  void call(Communicator& comm, Row& x) const { (comm.rank() == 2 ? odd : others)(comm, x)->wait(); }
  auto is_named() const {
    using ::testing::HasSubstr;
    return ::testing::AllOf(HasSubstr(others_called), HasSubstr(odd_called), HasSubstr("rank 2 called"),
                            ::testing::AnyOf(HasSubstr("rank 0 called"), HasSubstr("rank 1 called")));
  }
};

inline std::vector<MismatchCase> mismatch_cases() {
  const auto reduced = [](Reducing how) { return [how](Communicator& c, Row& x) { return c.all_reduce(x, how); }; };
  const auto sent_from = [](int root) { return [root](Communicator& c, Row& x) { return c.broadcast(x, root); }; };
  const auto all_reduce = reduced({});
  return {
      {"op", all_reduce, sent_from(0), "all_reduce of 12 fp32 (sum,", "broadcast of 12 fp32 (root 0, canonical)"},
      {"count", all_reduce, [](Communicator& c, Row& x) { return c.all_reduce(x.part(0, 11)); }, "of 12 fp32",
       "of 11 fp32"},
      {"dtype", all_reduce,
       [](Communicator& c, Row& x) {
         return c.all_reduce(Tensor(static_cast<Tensor>(x).raw(), DType::i32, Device::cpu, {12}));
       },
       "12 fp32", "12 int32"},
      {"reduction", all_reduce, reduced({.reduction = Reduction::max}), "(sum, canonical)", "(max, canonical)"},
      {"algorithm", reduced({.algorithm = Algorithm::tree}), reduced({.algorithm = Algorithm::ring}), "(sum, tree)",
       "(sum, ring)"},
      {"native", reduced({.algorithm = Algorithm::tree}), reduced({.algorithm = Algorithm::native}), "(sum, tree)",
       "(sum, native)"},
      {"root", sent_from(0), sent_from(1), "root 0", "root 1"},
      {"counts",
       [](Communicator& c, Row& x) {
         return c.all_gather(x, x.part(4 * c.rank(), 4), {4, 4, 4});
       },
       [](Communicator& c, Row& x) {
         return c.all_gather(x, x.part(8, 4), {3, 5, 4});
       },
       "cut [4, 4, 4]", "cut [3, 5, 4]"},
  };
}

inline std::string name_of_case(const ::testing::TestParamInfo<MismatchCase>& info) { return info.param.name; }

// Rank 0 of 2 sends more than rank 1 receives; both are told both calls.
inline void send_more_than_is_received(Communicator& comm) {
  Row x(DType::f32, 6);
  (comm.rank() == 0 ? comm.send(x, 1) : comm.recv(x.part(0, 5), 0))->wait();
}
inline auto names_send_and_recv() {
  return ::testing::AllOf(::testing::HasSubstr("rank 0 called send of 6 fp32 to 1"),
                          ::testing::HasSubstr("rank 1 called recv of 5 fp32 from 0"));
}

// A rank that tests an operation until it is over, and waits then.
inline void poll_a_barrier(Communicator& comm) {
  const auto pending = comm.barrier();
  while (!pending->done()) nap(0.001);
  pending->wait();
}

}  // namespace lockstep::tests
