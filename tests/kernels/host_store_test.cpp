// Small results reach the host as they are; on meta they are zeros.
#include "kernels/host_store.h"

#include <gtest/gtest.h>

#include "support/kernel_cases.h"
#include "support/tensor_box.h"
#include "tensor/meta/stream.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

TEST(HostStore, BringsEveryValue) {
  TensorBox box;
  for (const std::int64_t n : {1, 7, 1000}) {
    const Tensor x = box.make(DType::f64, {n}, normal());
    const HostBuffer host(n * 8, box.stream());
    host_store({.to = host.as<char>().data(), .from = x}, box.stream());
    for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(host.as<double>()[static_cast<std::size_t>(i)], x.data<double>()[i]);
  }
}

TEST(HostStore, IsZerosOnMeta) {
  Ledger ledger;
  const auto nothing = make_memory(Device::meta, ledger);
  meta::Stream stream;
  const Buffer buffer = nothing->allocate(40, Tag::data);
  std::vector<float> host(10, 3);
  host_store(HostStoreArgs{.to = host.data(), .from = view(buffer, DType::f32, {10})}, static_cast<Stream&>(stream));
  EXPECT_EQ(host, std::vector<float>(10, 0));
}

}  // namespace
}  // namespace lockstep::tests
