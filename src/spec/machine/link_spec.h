// A link between ranks: its bandwidth and the latency of a message, as in "1GB/s,50us".
//
//   bandwidth   a number and GB/s, MB/s, Gbit/s or another unit of a rate (text/quantity.h), from 0.1MB/s to
//               1000000GB/s
//   latency     a number and s, ms, us or ns, from 0s to 1s
//
// Both are given, in either order.
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

struct LinkSpec {
  double bytes_per_second = 1e9;
  double latency_seconds = 0;
  bool operator==(const LinkSpec&) const = default;
};

// UserError (usage) with `option` ("--link") before what is wrong.
LinkSpec parse_link(std::string_view text, const std::string& option);

std::string to_text(const LinkSpec& link);  // "1 GB/s and 50 us per message"

}  // namespace lockstep
