// Ranks for tests of communication: bodies run as thread ranks, and rows of elements that each rank owns.
#pragma once
#include <gtest/gtest.h>

#include <memory_resource>

#include "comm/threads/run_ranks.h"
#include "support/host_tensor.h"

namespace lockstep::tests {

inline constexpr DType kTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64};
inline constexpr Algorithm kAlgorithms[] = {Algorithm::canonical, Algorithm::ring, Algorithm::tree, Algorithm::native};

inline void each_rank(int ranks, const std::function<void(Communicator&)>& body, ThreadsOptions options = {}) {
  run_ranks(
      ranks, [&](std::unique_ptr<Communicator> comm) { body(*comm); }, options);
}

// Each rank's error in words; "" where its body ended well.
inline std::vector<std::string> errors_of(int ranks, const std::function<void(Communicator&)>& body,
                                          ThreadsOptions options = {}) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  each_rank(
      ranks,
      [&](Communicator& comm) {
        try {
          body(comm);
        } catch (const CommError& error) {
          errors[static_cast<std::size_t>(comm.rank())] = error.what();
        }
      },
      options);
  return errors;
}

// A row of elements of any type, begun as poison, in what is the default memory resource when it is made.
class Row {
 public:
  using Bytes = std::pmr::vector<std::byte>;
  Row(DType dtype, std::int64_t elements)
      : dtype_(dtype),
        elements_(elements),
        bytes_(static_cast<std::size_t>(elements * size_of(dtype)), std::byte{0x7b}) {}
  template <class Value>
  Row(DType dtype, std::int64_t elements, Value&& value) : Row(dtype, elements) {
    for (std::int64_t i = 0; i < elements; ++i) set(i, value(i));
  }

  operator Tensor() { return Tensor(bytes_.data(), dtype_, Device::cpu, {elements_}); }  // NOLINT: on purpose
  operator ConstTensor() { return static_cast<Tensor>(*this); }                          // NOLINT
  Tensor part(std::int64_t begin, std::int64_t count) { return static_cast<Tensor>(*this).slice(0, begin, count); }

  std::int64_t elements() const { return elements_; }
  const Bytes& bytes() const { return bytes_; }
  void set(std::int64_t i, double value) { store_element(bytes_.data() + i * size_of(dtype_), dtype_, value); }
  double operator[](std::int64_t i) const { return load_element(bytes_.data() + i * size_of(dtype_), dtype_); }

 private:
  DType dtype_;
  std::int64_t elements_;
  Bytes bytes_;
};

// Small whole numbers, whose sums over a few ranks every type has exactly.
inline double whole(int rank, std::int64_t i) { return static_cast<double>((rank * 7 + i * 3 + i / 11) % 13 - 6); }

inline Row row_of(DType dtype, std::int64_t elements, int rank) {
  return Row(dtype, elements, [rank](std::int64_t i) { return whole(rank, i); });
}

}  // namespace lockstep::tests
