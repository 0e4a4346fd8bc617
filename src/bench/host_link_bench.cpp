#include "bench/host_link_bench.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "base/median.h"
#include "tensor/host_memory.h"
#include "tensor/side_stream.h"
#include "tensor/transfer.h"

namespace lockstep {

HostLinkRate measure_host_link(Device device, std::int64_t bytes, int rounds) {
  Ledger on_device, on_host;
  const std::unique_ptr<Memory> memory = make_memory(device, on_device), host = make_host_memory(device, on_host);
  const Buffer here[] = {memory->allocate(bytes, Tag::workspace), memory->allocate(bytes, Tag::workspace)};
  const Buffer there[] = {host->allocate(bytes, Tag::workspace), host->allocate(bytes, Tag::workspace)};
  for (const Buffer& buffer : there) std::memset(buffer.data(), 1, static_cast<std::size_t>(bytes));
  SideStream up(device), down(device);
  const auto seconds_of = [&](bool ups, bool downs) {
    const auto begin = std::chrono::steady_clock::now();
    if (ups) upload_later(view(here[0], DType::f32, {bytes / 4}), there[0].data(), up.stream());
    if (downs) download_later(there[1].data(), view(here[1], DType::f32, {bytes / 4}), down.stream());
    up.stream().synchronize();
    down.stream().synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto rate = [&](bool ups, bool downs) {
    seconds_of(ups, downs);  // pages are touched, and the link is awake
    std::vector<double> rates;
    for (int i = 0; i < rounds; ++i) rates.push_back(static_cast<double>(bytes) / seconds_of(ups, downs));
    return median(rates);
  };
  return {.to_device = rate(true, false), .from_device = rate(false, true), .both = rate(true, true)};
}

}  // namespace lockstep
