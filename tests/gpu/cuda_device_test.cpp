// The GPU as a device of tensors: memory that the ledger counts, streams that keep their order, copies that arrive.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/error.h"
#include "tensor/cuda/device.h"
#include "tensor/transfer.h"

namespace lockstep {
namespace {

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
};

TEST(GpuAbsent, IsSaidInOneLine) {
  if (cuda::gpu_count() > 0) GTEST_SKIP() << "there is one";
  Ledger ledger;
  try {
    make_memory(Device::cuda, ledger);
    FAIL() << "memory of a GPU that is not there";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("CUDA"), std::string::npos) << error.what();
  }
}

TEST_F(Gpu, MemoryIsCountedAndGivenBack) {
  Ledger ledger;
  const auto memory = make_memory(Device::cuda, ledger);
  {
    const Buffer buffer = memory->allocate(1000, Tag::gradient, "block.0");
    EXPECT_NE(buffer.data(), nullptr);
    EXPECT_EQ(ledger.current(Tag::gradient), 1024);
  }
  EXPECT_EQ(ledger.current(), 0);
  EXPECT_THROW(memory->allocate(std::int64_t{1} << 50, Tag::activation), UserError);
  EXPECT_EQ(ledger.current(), 0);
  const Buffer again = memory->allocate(1 << 20, Tag::activation);  // a refusal leaves no error behind
  EXPECT_NE(again.data(), nullptr);
}

TEST_F(Gpu, BytesComeBackAsTheyWent) {
  Ledger ledger;
  const auto memory = make_memory(Device::cuda, ledger);
  cuda::Stream stream(*memory);
  std::vector<float> there(12345), back(12345);
  std::iota(there.begin(), there.end(), 0.5f);
  const Buffer buffer = memory->allocate(12345 * 4, Tag::data);
  const Tensor t = view(buffer, DType::f32, {12345});
  lockstep::upload(t, there.data(), stream);
  lockstep::download(back.data(), t, stream);
  EXPECT_EQ(back, there);
  std::vector<float> part(5);
  lockstep::download(part.data(), t.slice(0, 100, 5), stream);
  EXPECT_EQ(part, std::vector<float>(there.begin() + 100, there.begin() + 105));
}

TEST_F(Gpu, OneStreamWaitsForAnother) {
  Ledger streams;
  const auto memory = make_memory(Device::cuda, streams);
  cuda::Stream first(*memory), second(*memory);
  const auto event = first.make_event();
  EXPECT_TRUE(event->done());
  first.record(*event);
  second.wait(*event);
  second.synchronize();
  event->wait();
  EXPECT_TRUE(event->done());
}

}  // namespace
}  // namespace lockstep
