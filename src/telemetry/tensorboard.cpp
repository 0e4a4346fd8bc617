#include "telemetry/tensorboard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <system_error>

#include "base/error.h"
#include "base/system_failure.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

// ---- Protobuf's wire format: a field is its number and type as a varint, then its value.

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, int field, Wire type) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type));
}

template <class Unsigned>
void put_little_endian(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> 8 * i & 0xFF);
}

void put_bytes(std::string& out, int field, std::string_view value) {
  put_key(out, field, Wire::bytes);
  put_varint(out, value.size());
  out += value;
}

// ---- Messages

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
std::string event(double time, std::int64_t step, int field, std::string_view value) {
  std::string out;
  put_key(out, 1, Wire::fixed64);
  put_little_endian(out, std::bit_cast<std::uint64_t>(time));
  put_key(out, 2, Wire::varint);
  put_varint(out, static_cast<std::uint64_t>(step));
  put_bytes(out, field, value);
  return out;
}

// Summary: value = 1, repeated; Value: tag = 1, simple_value = 2.
std::string summary(const Scalars& scalars) {
  std::string out, value;
  for (const auto& [tag, scalar] : scalars) {
    value.clear();
    put_bytes(value, 1, tag);
    put_key(value, 2, Wire::fixed32);
    put_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar)));
    put_bytes(out, 1, value);
  }
  return out;
}

// SessionLog: status = 1, of which START is 1.
std::string session_start() {
  std::string out;
  put_key(out, 1, Wire::varint);
  put_varint(out, 1);
  return out;
}

std::string record_of_event(const std::string& data) {
  std::string out;
  out.reserve(data.size() + 16);
  put_little_endian(out, static_cast<std::uint64_t>(data.size()));
  put_little_endian(out, masked_crc32c(out));
  out += data;
  put_little_endian(out, masked_crc32c(data));
  return out;
}

// ---- Files

constexpr std::string_view kPrefix = "events.out.tfevents.";

// The seconds in the name of an event file; 0 of another.
std::int64_t time_in_name(const std::string& name) {
  std::int64_t seconds = 0;
  if (name.starts_with(kPrefix)) std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), seconds);
  return seconds;
}

std::string event_file_host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] ? name.data() : "localhost";
}

// TensorBoard reads the files of a folder in the order of their names: this one is the last.
fs::path new_path(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw EnvironmentError(system_failure(folder, "make", failed.value()));
  auto seconds = static_cast<std::int64_t>(seconds_since_1970());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed))
    seconds = std::max(seconds, time_in_name(entry.path().filename().string()) + 1);
  return folder / fmt::format("{}{:010}.{}", kPrefix, seconds, event_file_host());
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  constexpr auto kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < table.size(); ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? 0x82F63B78u : 0u);
      table[i] = value;
    }
    return table;
  }();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

Scalars scalars_of(const StepRecord& r) {
  Scalars scalars{{"train/loss", r.loss},
                  {"train/lr", r.lr},
                  {"train/grad_norm", r.grad_norm},
                  {"speed/tokens_per_s", r.tokens_per_s},
                  {"speed/step_ms", r.seconds * 1e3}};
  if (r.mfu) scalars.emplace_back("speed/mfu", *r.mfu);
  if (!r.arrivals.empty()) {
    const Staleness staleness = staleness_of(r.arrivals);
    scalars.emplace_back("staleness/mean", staleness.mean);
    scalars.emplace_back("staleness/max", static_cast<double>(staleness.most));
  }
  if (r.divergence) scalars.emplace_back("sync/divergence", *r.divergence);
  if (r.compression_error) scalars.emplace_back("sync/compression_error", *r.compression_error);
  double all = 0;
  for (const TimesByUse& rank : r.times) all += rank.total() / static_cast<double>(r.times.size());
  for (int u = 0; all > 0 && u < kTimeUses; ++u) {
    const auto use = static_cast<TimeUse>(u);
    if (const double mean = over_ranks(r.times, use).mean; mean > 0)
      scalars.emplace_back("time/" + std::string(name_of(use)), mean / all);
  }
  return scalars;
}

TensorboardFile::TensorboardFile(const fs::path& folder, std::int64_t first_step, std::chrono::milliseconds flush)
    : path_(new_path(folder)), file_(path_), flush_(flush) {
  const double now = seconds_since_1970();
  append(event(now, 0, 3, "brain.Event:2"));
  append(event(now, first_step + 1, 7, session_start()));
  this->flush();
}

void TensorboardFile::append(const std::string& event) { waiting_ += record_of_event(event); }

void TensorboardFile::write(std::int64_t step, double time, const Scalars& scalars) {
  append(event(time, step, 5, summary(scalars)));
  if (waiting_.size() >= kMostWaiting || std::chrono::steady_clock::now() >= flushed_ + flush_) flush();
}

void TensorboardFile::write(const StepRecord& r) { write(r.step, r.time, scalars_of(r)); }

void TensorboardFile::write(const EvalRecord& r) {
  Scalars scalars{{"eval/loss", r.loss}};
  if (r.accuracy) scalars.emplace_back("eval/accuracy", *r.accuracy);
  write(r.step, r.time, scalars);
}

void TensorboardFile::flush() {
  file_.write(waiting_);
  waiting_.clear();
  flushed_ = std::chrono::steady_clock::now();
}

}  // namespace lockstep
