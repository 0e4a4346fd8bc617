// A GPU's health through NVML, whose place a stand-in takes: this needs no GPU.
#include "telemetry/gpu_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "support/program.h"
#include "telemetry/heartbeat.h"
#include "telemetry/host_health.h"
#include "telemetry/rank_folder.h"

namespace lockstep::tests {
namespace {

// What the stand-in answers, and what it was asked.
struct StandIn {
  int status = 0;
  unsigned long long reasons = 0;
  std::string bus_id = {};
};
StandIn stand_in;

NvmlFunctions stand_in_functions() {
  return {.init = [] { return 0; },
          .handle_by_bus_id =
              [](const char* id, NvmlFunctions::Device* device) {
                stand_in.bus_id = id;
                *device = &stand_in;
                return stand_in.status;
              },
          .throttle_reasons =
              [](NvmlFunctions::Device device, unsigned long long* reasons) {
                EXPECT_EQ(device, &stand_in);
                *reasons = stand_in.reasons;
                return 0;
              },
          .temperature =
              [](NvmlFunctions::Device, int sensor, unsigned* degrees) {
                EXPECT_EQ(sensor, 0);
                *degrees = 71;
                return 0;
              },
          .clock =
              [](NvmlFunctions::Device, int type, unsigned* mhz) {
                EXPECT_EQ(type, 1);
                *mhz = 1980;
                return 0;
              },
          .memory =
              [](NvmlFunctions::Device, NvmlFunctions::Memory* memory) {
                *memory = {.total = 1000, .free = 300, .used = 700};
                return 0;
              }};
}

TEST(GpuHealth, SaysWhatHoldsTheClockBackAndForHowLong) {
  stand_in = {};
  GpuHealth health(stand_in_functions(), "0000:1B:00.0");
  EXPECT_EQ(stand_in.bus_id, "0000:1B:00.0");
  RankGpu gpu = health.sample(1).value();
  EXPECT_EQ(gpu.sm_mhz, 1980);
  EXPECT_EQ(gpu.temperature, 71);
  EXPECT_EQ(gpu.memory_used, 700);
  EXPECT_EQ(gpu.memory_total, 1000);
  EXPECT_TRUE(gpu.throttled.empty());
  stand_in.reasons = 0x1 | 0x2 | 0x4 | 0x10 | 0x100;  // idle, set clocks, power cap: none of them slows it down
  EXPECT_EQ(health.sample(1)->throttled_seconds, 0);
  stand_in.reasons = 0x40 | 0x8;
  gpu = health.sample(2).value();
  EXPECT_THAT(gpu.throttled, testing::ElementsAre("hardware slowdown", "too hot (hardware)"));
  EXPECT_EQ(gpu.throttled_seconds, 2);
  EXPECT_EQ(health.sample(3)->throttled_seconds, 5);
  stand_in.reasons = 0;
  EXPECT_EQ(health.sample(4)->throttled_seconds, 5);
}

TEST(GpuHealth, IsNothingWithoutALibraryOrAGpu) {
  EXPECT_FALSE(open_nvml("libno-such-library.so.1"));
  EXPECT_FALSE(GpuHealth({}, "0000:1B:00.0").sample(1));
  EXPECT_FALSE(GpuHealth(open_nvml("libc.so.6").value(), "0000:1B:00.0").sample(1));  // it has none of the functions
  stand_in = {.status = 6};
  EXPECT_FALSE(GpuHealth(stand_in_functions(), "none").sample(1));
}

TEST(GpuHealth, IsInTheFileOfItsRankOnceASecond) {
  stand_in = {.reasons = 0x20};
  const TemporaryFolder run;
  {
    Heartbeat heartbeat(run.path(), {.period = std::chrono::milliseconds(5), .nvml = stand_in_functions()});
    heartbeat.add(0, {}, "0000:1B:00.0");
    heartbeat.add(1, {});
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  const RankNow now = read_rank_now(rank_file(run.path(), 0, "now")).value();
  ASSERT_TRUE(now.gpu);
  EXPECT_EQ(now.gpu->sm_mhz, 1980);
  EXPECT_THAT(now.gpu->throttled, testing::ElementsAre("too hot (software)"));
  EXPECT_NEAR(now.gpu->throttled_seconds, 0.2, 0.15);
  EXPECT_FALSE(read_rank_now(rank_file(run.path(), 1, "now"))->gpu);
}

TEST(HostHealth, CountsTheTimeOnACoreAndTheMemory) {
  const RankCpu before = cpu_of_thread(this_thread_id()).value();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (std::chrono::steady_clock::now() < end) {
  }
  const RankCpu after = cpu_of_thread(this_thread_id()).value();
  const double passed = after.ran - before.ran + after.waited - before.waited;
  EXPECT_NEAR(passed, 0.1, 0.05);
  EXPECT_GT(after.ran, before.ran);
  EXPECT_FALSE(cpu_of_thread(0x7fffffff));
  const RankMemory memory = memory_of_process().value();
  EXPECT_GT(memory.used, 1 << 20);
  EXPECT_GT(memory.limit, memory.used);
}

}  // namespace
}  // namespace lockstep::tests
