#include "launch/agent_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/system_failure.h"
#include "comm/control/handshake.h"
#include "comm/control/socket.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kEpoch = "epoch-";

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

void write_all(int descriptor, const std::string& text, const fs::path& file) {
  if (::write(descriptor, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw EnvironmentError(system_failure(file, "write", errno));
}

// Whole or not at all, and for nobody else to read.
void replace(const fs::path& file, const std::string& text) {
  const fs::path beside = fmt::format("{}.{}", file.string(), ::getpid());
  ::unlink(beside.c_str());
  const control::Socket open(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!open) throw EnvironmentError(system_failure(beside, "open", errno));
  write_all(open.descriptor(), text, beside);
  if (::rename(beside.c_str(), file.c_str()) != 0) throw EnvironmentError(system_failure(file, "rename", errno));
}

}  // namespace

AgentFolder::AgentFolder(const fs::path& run, int agent) : run_(run), path_(run / ".launch"), agent_(agent) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) throw EnvironmentError(system_failure(path_, "make", error.value()));
  fs::permissions(path_, fs::perms::owner_all, error);
  const fs::path file = path_ / fmt::format("agent-{}.lock", agent);
  lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) throw EnvironmentError(system_failure(file, "open", errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    throw UserError(ExitCode::usage, fmt::format("another launch is at work in {}", run.string()),
                    "wait for it, stop it, or choose another --out");
  }
}

AgentFolder::~AgentFolder() {
  if (lock_ >= 0) ::close(lock_);
}

std::string AgentFolder::token() {
  const fs::path file = path_ / "token";
  for (int i = 0; i < 100; ++i) {
    if (const std::string there = text_of(file); there.size() >= 32) return there;
    // A link is made whole or not at all, and fails where another was first.
    const fs::path beside = path_ / fmt::format("token.{}.{}", agent_, ::getpid());
    replace(beside, control::Token::make());
    if (::link(beside.c_str(), file.c_str()) != 0 && errno != EEXIST) {
      const int why = errno;
      ::unlink(beside.c_str());
      throw EnvironmentError(system_failure(file, "link", why));
    }
    ::unlink(beside.c_str());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw EnvironmentError(fmt::format("{} holds no token; remove it", file.string()));
}

void AgentFolder::write_endpoint(const AgentEndpoint& endpoint, std::string_view of) {
  replace(path_ / fmt::format("{}-{}", of, agent_),
          fmt::format("{} {} {}\n", endpoint.address, endpoint.port, endpoint.process));
}

std::optional<AgentEndpoint> AgentFolder::endpoint_of(int agent, std::string_view of) const {
  AgentEndpoint endpoint;
  std::istringstream text(text_of(path_ / fmt::format("{}-{}", of, agent)));
  if (!(text >> endpoint.address >> endpoint.port >> endpoint.process) || endpoint.port < 1 || endpoint.port > 65535)
    return std::nullopt;
  return endpoint;
}

void AgentFolder::write_leader(int agent) { replace(path_ / "leader", fmt::format("{}\n", agent)); }

std::optional<int> AgentFolder::leader() const {
  int agent = -1;
  std::istringstream text(text_of(path_ / "leader"));
  if (!(text >> agent) || agent < 0) return std::nullopt;
  return agent;
}

fs::path AgentFolder::epoch_file(std::uint32_t epoch) const { return path_ / fmt::format("{}{:08}", kEpoch, epoch); }

std::uint32_t AgentFolder::last_epoch() const {
  std::uint32_t last = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    std::uint32_t number = 0;
    if (!name.starts_with(kEpoch)) continue;
    const auto [end, failed] = std::from_chars(name.data() + kEpoch.size(), name.data() + name.size(), number);
    if (failed == std::errc() && end == name.data() + name.size()) last = std::max(last, number);
  }
  return last;
}

bool AgentFolder::take_epoch(std::uint32_t epoch) {
  const fs::path file = epoch_file(epoch);
  const std::string mine = fmt::format("agent {} process {}\n", agent_, ::getpid());
  const control::Socket open(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!open && errno == EEXIST) return text_of(file) == mine;
  if (!open) throw EnvironmentError(system_failure(file, "make", errno));
  try {
    write_all(open.descriptor(), mine, file);
  } catch (...) {
    ::unlink(file.c_str());  // nobody's, or it would be another's for ever
    throw;
  }
  return true;
}

bool AgentFolder::run_is_free() const {
  const fs::path file = run_ / ".lock";
  const control::Socket open(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  if (!open) return errno == ENOENT;
  return ::flock(open.descriptor(), LOCK_EX | LOCK_NB) == 0;  // closing gives it back
}

bool AgentFolder::is_there() const {
  std::error_code error;
  return std::filesystem::exists(path_, error) || error;
}

void AgentFolder::remove() {
  std::error_code error;
  fs::remove_all(path_, error);
  ::rmdir(run_.c_str());  // which leaves a folder that holds something
}

}  // namespace lockstep
