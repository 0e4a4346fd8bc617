#include "cli/launch_processes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/system_failure.h"
#include "cli/text_or_nothing.h"
#include "cli/usage_error.h"
#include "comm/control/guarded.h"
#include "comm/nccl/host_side.h"
#include "comm/rethrow.h"
#include "comm/tcp/connect.h"
#include "comm/tcp/world.h"
#include "launch/agent_message.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr int kMostProcesses = 1 << 20;
// NCCL's own deadline is later than that of the control plane, which knows who is missing.
constexpr double kGrace = 5;

struct Range {
  int least, most;
};

// ---------------------------------------------------------------------------------------------------- variables

std::string value_of(const Variables& variable, const char* name) {
  if (const char* value = variable(name)) return value;
  refuse(fmt::format("{} is not set, and {} is", name, variable("RANK") ? "RANK" : "WORLD_SIZE"),
         "a launcher as torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; unset them to run "
         "without one");
}

int number_of(const Variables& variable, const char* name, Range range) {
  const std::string text = value_of(variable, name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < range.least || value > range.most)
    refuse(fmt::format("{} is {}", name, quote_text(text)),
           fmt::format("the launcher sets it to a number from {} to {}", range.least, range.most));
  return value;
}

// ---------------------------------------------------------------------------------------------------- control file

// Where and with which token the ranks of a run meet; one line each in the file.
struct Endpoint {
  int port = 0;
  std::string token;
};

std::optional<Endpoint> read_endpoint(const fs::path& file) {
  Endpoint endpoint;
  std::istringstream text(text_or_nothing(file));
  if (!(text >> endpoint.port >> endpoint.token) || endpoint.port < 1 || endpoint.port > 65535 ||
      endpoint.token.size() < 16)  // of no coordinator
    return std::nullopt;
  return endpoint;
}

// At the launcher's port, or, where that is taken, at any.
std::unique_ptr<control::Coordinator> coordinate(const LaunchedProcess& place, const std::string& token) {
  const auto tell = [](const std::string& message) { fmt::print(stderr, "lockstep: {}\n", message); };
  const auto at = [&](int port) {
    return std::make_unique<control::Coordinator>(
        control::CoordinatorOptions{.address = place.address, .port = port, .token = token, .notify = tell});
  };
  try {
    return at(place.port);
  } catch (const UserError& error) {
    try {
      return at(0);
    } catch (const UserError&) {
      refuse(
          fmt::format("MASTER_ADDR is {} and MASTER_PORT {}: {}", quote_text(place.address), place.port, error.what()),
          "MASTER_ADDR is an address of the machine that rank 0 runs on");
    }
  }
}

// Whether a coordinator with this token is there.
bool lets_in(const std::string& address, const Endpoint& endpoint) {
  std::string why_not;
  try {
    return control::connect_secured(address, endpoint.port, control::Token(endpoint.token),
                                    control::Clock::now() + control::seconds(1), why_not)
        .has_value();
  } catch (const CommError&) {
    return false;
  }
}

// The file may still be an earlier run's, whose coordinator is gone or is another: then a new one will come. A rank
// that is let in is with the right ranks, and later errors are reported as they are.
std::unique_ptr<control::Session> join(const fs::path& file, control::SessionOptions options) {
  const auto until = control::Clock::now() + control::seconds(options.deadline_seconds);
  for (;;) {
    const std::optional<Endpoint> endpoint = read_endpoint(file);
    const bool late = control::Clock::now() >= until;
    if (endpoint && lets_in(options.address, *endpoint)) {
      options.port = endpoint->port;
      options.token = endpoint->token;
      return std::make_unique<control::Session>(options);
    }
    if (late && !endpoint)
      throw CommError(fmt::format(
          "rank {} has found no {} of rank 0 within {} s; start rank 0, with the same --out, on a file system that all "
          "ranks see",
          options.rank, file.string(), options.deadline_seconds));
    if (late)
      throw CommError(
          fmt::format("rank {} is not let in by rank 0 at {}, port {}, within {} s; MASTER_ADDR is where rank 0 "
                      "runs",
                      options.rank, options.address, endpoint->port, options.deadline_seconds));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// ---------------------------------------------------------------------------------------------------- failures

// Ends a world when the control plane has learned that a rank is lost: of a host that is cut off nobody else hears. The
// world mostly sees it first, and knows more (which call the rank was in), so it is left a moment.
class EndWithSession {
 public:
  EndWithSession(const control::Session& session, processes::World& world)
      : thread_([&](const std::stop_token& stop) {
          constexpr double kLook = 0.02, kMoment = 0.25;
          while (!stop.stop_requested() && !session.fails_within(kLook)) {
          }
          const auto until = control::Clock::now() + control::seconds(kMoment);
          while (!stop.stop_requested() && control::Clock::now() < until)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          if (stop.stop_requested()) return;
          try {
            session.check();
          } catch (const CommError& error) {
            world.abort({error.what(), error.secondary()});
          }
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace

void write_for_us(const fs::path& file, const std::string& text) {
  const std::string beside = fmt::format("{}.{}", file.string(), ::getpid());
  ::unlink(beside.c_str());
  const control::Socket open(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!open || ::write(open.descriptor(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::rename(beside.c_str(), file.c_str()) != 0) {
    const std::string failure = system_failure(file, "write", errno);
    ::unlink(beside.c_str());
    throw EnvironmentError(failure);
  }
}

std::optional<LaunchedProcess> launched_process(const Variables& variable) {
  if (!variable("RANK") && !variable("WORLD_SIZE")) return std::nullopt;
  const int ranks = number_of(variable, "WORLD_SIZE", {1, kMostProcesses});
  LaunchedProcess place{.rank = number_of(variable, "RANK", {0, ranks - 1}),
                        .ranks = ranks,
                        // A spare place of the machine may be numbered beyond the ranks there are.
                        .local_rank = number_of(variable, "LOCAL_RANK", {0, kMostProcesses - 1}),
                        .address = value_of(variable, "MASTER_ADDR"),
                        .port = number_of(variable, "MASTER_PORT", {1, 65535})};
  const char* const kAddress = "the launcher sets it to the address of rank 0's machine";
  if (place.address.empty()) refuse("MASTER_ADDR is empty", kAddress);
  if (!is_host_text(place.address)) refuse(fmt::format("MASTER_ADDR is {}", quote_text(place.address)), kAddress);
  return place;
}

nccl::Share share_over(Communicator& hosts) {
  return [&hosts](std::span<const char> mine) {
    std::vector<char> bytes(mine.begin(), mine.end());
    std::vector<std::int64_t> words(bytes.size() / 8);
    std::memcpy(words.data(), bytes.data(), bytes.size());
    hosts.broadcast(Tensor(words.data(), DType::i64, Device::cpu, {std::ssize(words)}), 0)->wait();
    std::memcpy(bytes.data(), words.data(), bytes.size());
    return bytes;
  };
}

ProcessWorld::ProcessWorld(const LaunchedProcess& place, Options options)
    : place_(place), options_(std::move(options)) {
  control::require_encryption();
  control::SessionOptions joining{.address = place_.address,
                                  .rank = place_.rank,
                                  .size = place_.ranks,
                                  .deadline_seconds = options_.deadline_seconds};
  if (place_.rank == 0) {
    std::error_code error;
    fs::create_directories(options_.folder, error);  // writing there reports what is wrong with it
    fs::remove(control_file(), error);
    joining.token = control::Token::make();
    coordinator_ = coordinate(place_, joining.token);
    joining.port = coordinator_->port();
    // After the listening: nobody can come in without the token, and whoever reads it finds the port open.
    written_ = fmt::format("{}\n{}\n", joining.port, joining.token);
    write_for_us(control_file(), written_);
  }
  try {
    session_ = coordinator_ ? std::make_unique<control::Session>(joining) : join(control_file(), joining);
    meet();
  } catch (...) {
    if (!written_.empty()) ::unlink(control_file().c_str());
    throw;
  }
}

ProcessWorld::~ProcessWorld() {
  if (!written_.empty() && text_or_nothing(control_file()) == written_) ::unlink(control_file().c_str());
}

std::vector<std::string> ProcessWorld::gather(const std::string& mine) {
  const int number = gathers_++;
  const auto key = [&](int rank) { return fmt::format("text {} of {}", number, rank); };
  session_->put(key(place_.rank), mine);
  std::vector<std::string> texts;
  for (int rank = 0; rank < place_.ranks; ++rank) texts.push_back(session_->get(key(rank)));
  return texts;
}

// Who is on which host.
void ProcessWorld::meet() {
  const std::vector<std::string> hosts = gather(control::host_name());
  const std::string& here = hosts[static_cast<std::size_t>(place_.rank)];
  ranks_here_ = static_cast<int>(std::ranges::count(hosts, here));
  place_here_ = static_cast<int>(std::count(hosts.begin(), hosts.begin() + place_.rank, here));
}

void ProcessWorld::run(const Body& body) {
  const auto tell = [&](const char* what) {
    session_->fail(what);
    return fmt::format("rank {}: {}", place_.rank, what);
  };
  try {
    options_.open ? run_on_gpus(body) : run_on_host(body);
  } catch (...) {
    rethrow_with(tell);
  }
  session_->leave();
  if (coordinator_ && !coordinator_->drain(options_.deadline_seconds))
    fmt::print(stderr, "lockstep: some ranks have not ended within {} s after rank 0\n", options_.deadline_seconds);
}

// Ranks that compute on the host, over shared memory and TCP.
void ProcessWorld::run_on_host(const Body& body) {
  TcpWorld world({.rank = place_.rank,
                  .size = place_.ranks,
                  .address = coordinator_ ? coordinator_->address() : tcp::address_towards(place_.address),
                  .gather = [this](const std::string& mine) { return gather(mine); },
                  .processes = {.deadline_seconds = options_.deadline_seconds}});
  const EndWithSession watch(*session_, world);
  try {
    const std::unique_ptr<Communicator> ranks = world.communicator();
    body(*ranks, {});
  } catch (...) {
    rethrow_with([&](const char* what) {
      world.abort({fmt::format("rank {} has failed: {}", place_.rank, what), true});
      return std::string(what);
    });
  }
}

void ProcessWorld::run_on_gpus(const Body& body) {
  control::Session& session = *session_;
  const double deadline = options_.deadline_seconds;
  const std::unique_ptr<nccl::Library> library = options_.open();
  // Staging is separate from the run's own memory, which is exactly as large as its plan.
  Ledger ledger;
  const std::unique_ptr<Memory> memory = make_memory(options_.device, ledger);
  const nccl::Share over_control = [&](std::span<const char> mine) {
    const std::string key = "id of hosts";
    if (session.rank() == 0) session.put(key, std::string(mine.begin(), mine.end()));
    const std::string id = session.get(key);
    return std::vector<char>(id.begin(), id.end());
  };
  const auto place = [&](const char* name) { return nccl::Membership{session.rank(), session.size(), name}; };
  Guarded hosts(
      nccl::make_host_side(*library, place("hosts"), over_control, *memory,
                           {.deadline_seconds = deadline + kGrace,
                            .barrier = [&](const std::string& name, double most) { session.barrier(name, most); }}),
      session, deadline);
  body(hosts, [&](Communicator& over, Memory&, Stream& stream) -> std::unique_ptr<Communicator> {
    auto replicas = nccl::make_communicator(*library, place("replicas"), share_over(over), *memory, stream,
                                            {.deadline_seconds = deadline + kGrace});
    return std::make_unique<Guarded>(std::move(replicas), session, deadline);
  });
}

}  // namespace lockstep
