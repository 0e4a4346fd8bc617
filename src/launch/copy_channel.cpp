#include "launch/copy_channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/system_failure.h"
#include "comm/error.h"

namespace lockstep {

namespace {

constexpr double kSlice = 0.2;                 // seconds between two looks at `stop`
constexpr std::size_t kMostWaiting = 1 << 20;  // bytes that were not sent yet

}  // namespace

void CopyChannel::send_payload(std::string payload) {
  stream_.write(control::Frame{control::FrameType::agent, 0, std::move(payload)});
  const auto until = control::Clock::now() + control::seconds(kSeconds);
  stream_.flush();
  while (stream_.waiting() > kMostWaiting) {
    if (stop_ || control::Clock::now() >= until) throw CommError("it does not read what it is sent");
    control::wait_for(stream_.descriptor(), POLLOUT, control::Clock::now() + control::seconds(kSlice));
    stream_.flush();
  }
}

std::string CopyChannel::receive_payload(double seconds) {
  const auto until = control::Clock::now() + control::seconds(seconds);
  for (;;) {
    if (auto frame = stream_.frames.next()) {
      if (frame->type != control::FrameType::agent) throw CommError("it sends what no agent sends");
      return std::move(frame->payload);
    }
    if (stop_ || control::Clock::now() >= until) throw CommError("it does not answer");
    stream_.flush();
    const short events = static_cast<short>(POLLIN | (stream_.wants_to_write() ? POLLOUT : 0));
    if (!control::wait_for(stream_.descriptor(), events, control::Clock::now() + control::seconds(kSlice))) continue;
    read_.clear();
    if (!stream_.read(read_) && read_.empty()) throw CommError("it has closed the connection");
    stream_.frames.feed(read_);
  }
}

void CopyChannel::send(const nlohmann::json& message) {
  send_payload(message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

nlohmann::json CopyChannel::receive(double seconds) {
  nlohmann::json message = nlohmann::json::parse(receive_payload(seconds), nullptr, false);
  if (!message.is_object()) throw CommError("it sends what is no message");
  return message;
}

bool CopyChannel::waits_for_more(double seconds) {
  stream_.flush();
  return control::wait_for(stream_.descriptor(), POLLIN, control::Clock::now() + control::seconds(seconds));
}

void CopyChannel::send_file(const std::filesystem::path& file, std::int64_t bytes) {
  const control::Socket open(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!open) throw EnvironmentError(system_failure(file, "open", errno));
  while (bytes > 0) {
    std::string piece(static_cast<std::size_t>(std::min<std::int64_t>(bytes, kPiece)), '\0');
    const ssize_t got = ::read(open.descriptor(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw EnvironmentError(got < 0 ? system_failure(file, "read", errno)
                                     : fmt::format("{} is shorter than it was", file.string()));
    piece.resize(static_cast<std::size_t>(got));
    bytes -= got;
    send_payload(std::move(piece));
  }
}

void CopyChannel::receive_file(const std::filesystem::path& file, std::int64_t bytes) {
  const control::Socket open(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  std::string failure = open ? "" : system_failure(file, "open", errno);
  for (std::int64_t left = bytes; left > 0;) {
    const std::string piece = receive_payload(kSeconds);
    if (piece.empty() || std::ssize(piece) > left) throw CommError("it sends more of a file than there is");
    left -= std::ssize(piece);
    for (std::size_t at = 0; failure.empty() && at < piece.size();) {
      const ssize_t written = ::write(open.descriptor(), piece.data() + at, piece.size() - at);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0)
        failure = system_failure(file, "write", errno);
      else
        at += static_cast<std::size_t>(written);
    }
  }
  if (failure.empty() && ::ftruncate(open.descriptor(), bytes) != 0) failure = system_failure(file, "ftruncate", errno);
  if (!failure.empty()) throw EnvironmentError(failure);
}

bool is_copy_file_name(const std::string& name) {
  return !name.empty() && name.size() <= 128 && name.front() != '.' && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

}  // namespace lockstep
