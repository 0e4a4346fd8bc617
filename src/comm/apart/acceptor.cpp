#include "comm/apart/acceptor.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::apart {

namespace {

constexpr double kUnprovenSeconds = 2;
constexpr char kComeIn = 'y', kOtherSettings = 's';

struct Words {  // after the hello
  std::uint32_t version = 1, channel = 0;
  std::uint64_t life = 0;
  char settings[kSettingsBytes] = {};
};
constexpr std::size_t kAllBytes = tcp::kHelloBytes + sizeof(Words);

Words words_of(const Introduction& introduction, const std::string& settings) {
  Words words{.channel = static_cast<std::uint32_t>(introduction.channel), .life = introduction.life};
  settings.copy(words.settings, kSettingsBytes);
  return words;
}

bool send_all(const control::Socket& socket, const std::string& bytes) {
  return ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == std::ssize(bytes);
}

}  // namespace

Acceptor::Acceptor(const std::string& address, const tcp::WorldKeys& keys, int rank, const std::string& settings)
    : listening_(control::listen_on(address, 0)), keys_(keys), rank_(rank), settings_(settings) {}

std::vector<Acceptor::Accepted> Acceptor::accept() {
  std::string from;
  while (control::Socket socket = control::accept_from(listening_, from)) {
    unproven_.push_back({.socket = std::move(socket)});
    if (unproven_.size() > kMostUnproven) unproven_.pop_front();
  }
  std::vector<Accepted> accepted;
  for (auto one = unproven_.begin(); one != unproven_.end();)
    one = listen_to(*one, accepted) ? std::next(one) : unproven_.erase(one);
  return accepted;
}

// Whether more is expected of it.
bool Acceptor::listen_to(Unproven& one, std::vector<Accepted>& accepted) {
  char bytes[kAllBytes];
  const ssize_t came = ::recv(one.socket.descriptor(), bytes, kAllBytes - one.bytes.size(), MSG_DONTWAIT);
  if (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    return control::seconds_since(one.since) <= kUnprovenSeconds;
  if (came <= 0) return false;
  one.bytes.append(bytes, static_cast<std::size_t>(came));
  if (one.bytes.size() < kAllBytes) return true;
  const auto ends = tcp::check_hello(std::string_view(one.bytes).substr(0, tcp::kHelloBytes), keys_.hello);
  if (!ends || ends->to != rank_) return false;  // a stranger
  Words words;
  std::memcpy(&words, one.bytes.data() + tcp::kHelloBytes, sizeof words);
  const Words own = words_of({}, settings_);
  const bool alike =
      words.version == own.version && std::equal(own.settings, own.settings + kSettingsBytes, words.settings);
  const std::string answer = tcp::hello_with(keys_.answer, {.from = rank_, .to = ends->from});
  if (!send_all(one.socket, answer + (alike ? kComeIn : kOtherSettings)) || !alike || words.channel > 1) return false;
  accepted.push_back(
      {.introduction = {.rank = ends->from, .channel = static_cast<Channel>(words.channel), .life = words.life},
       .socket = std::move(one.socket)});
  return false;
}

namespace {

[[noreturn]] void fail(const ServerAddress& server, int rank, const std::string& why) {
  throw CommError(fmt::format("rank {} is not let in by the parameter server of rank {} at {}, port {}: {}", rank,
                              server.rank, server.address, server.port, why));
}

}  // namespace

control::Socket introduce_to(const ServerAddress& server, const tcp::WorldKeys& keys, const Introduction& introduction,
                             const std::string& settings, control::Clock::time_point until) {
  std::string why_not;
  control::Socket socket = control::connect_to(server.address, server.port, until, why_not);
  if (!socket) fail(server, introduction.rank, why_not);
  end_when_host_is_gone(socket);  // the answer may take long
  const Words words = words_of(introduction, settings);
  std::string bytes = tcp::hello_with(keys.hello, {.from = introduction.rank, .to = server.rank});
  bytes.append(reinterpret_cast<const char*>(&words), sizeof words);
  if (!send_all(socket, bytes)) fail(server, introduction.rank, "it has closed the connection");
  return socket;
}

void await_answer(const control::Socket& socket, const ServerAddress& server, const tcp::WorldKeys& keys, int rank,
                  control::Clock::time_point until) {
  const std::string answer = control::read_exactly(socket, tcp::kHelloBytes + 1, until);
  const auto ends = tcp::check_hello(answer.substr(0, std::min(answer.size(), tcp::kHelloBytes)), keys.answer);
  if (!ends || ends->from != server.rank || ends->to != rank || answer.size() != tcp::kHelloBytes + 1)
    fail(server, rank, "it does not answer as a server of this run");
  if (answer.back() == kOtherSettings)
    throw UserError(ExitCode::usage, "the servers train by other settings, another program or other data",
                    "leave the run file, the data and the program as they are while the run goes on");
}

}  // namespace lockstep::apart
