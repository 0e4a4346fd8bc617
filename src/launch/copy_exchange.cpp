#include "launch/copy_exchange.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <list>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "comm/control/connector.h"
#include "comm/error.h"

namespace lockstep {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr std::string_view kOfCopies = "copies";  // the endpoint's name in the run's folder (agent_folder.h)
constexpr std::size_t kMostGuests = 64;
constexpr std::size_t kNamesAMessage = 256;
constexpr std::int64_t kMostFileBytes = std::int64_t{1} << 46, kMostCopyStep = 1'000'000'000'000;
constexpr double kIdle = 3600;  // a connection that mirrors may be quiet for as long as steps last
constexpr int kExchangeRoundMs = 50;

std::int64_t number_in(const json& message, const char* name, std::int64_t most) {
  const auto at = message.find(name);
  if (at == message.end() || !at->is_number_integer()) throw CommError(fmt::format("a message without '{}'", name));
  const std::int64_t value = at->get<std::int64_t>();
  if (value < 0 || value > most) throw CommError(fmt::format("'{}' is out of range", name));
  return value;
}

std::string name_in(const json& message, const char* name) {
  const auto at = message.find(name);
  if (at == message.end() || !at->is_string() || !is_copy_file_name(at->get<std::string>()))
    throw CommError(fmt::format("'{}' names no file", name));
  return at->get<std::string>();
}

std::int64_t size_of_file(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  return error ? -1 : static_cast<std::int64_t>(size);
}

void put_file(CopyChannel& channel, const fs::path& file) {
  const std::int64_t bytes = size_of_file(file);
  if (bytes < 0) throw EnvironmentError(fmt::format("{} is gone", file.string()));
  channel.send({{"file", file.filename().string()}, {"bytes", bytes}});
  channel.send_file(file, bytes);
}

}  // namespace

struct CopyExchange::Guest {
  CopyChannel channel;
  std::atomic<bool> gone = false;
  std::jthread thread;
};

CopyExchange::CopyExchange(Options options)
    : options_(std::move(options)),
      store_(options_.folder),
      token_(options_.token),
      listener_({.address = options_.address, .token = options_.token, .notify = options_.tell}) {
  options_.endpoints.write_endpoint({.address = listener_.address(), .port = listener_.port(), .process = ::getpid()},
                                    kOfCopies);
  std::ofstream(options_.folder / kExchangeName) << "";  // so that ranks wait for copies to be mirrored
  server_ = std::jthread([this] { listen(); });
  pusher_ = std::jthread([this] { push(); });
}

CopyExchange::~CopyExchange() { stop_ = true; }

// ------------------------------------------------------------------------------------------------ what others ask

void CopyExchange::listen() {
  std::list<Guest> guests;
  while (!stop_) {
    std::vector<pollfd> polled;
    listener_.watch(polled);
    ::poll(polled.data(), polled.size(), kExchangeRoundMs);
    for (control::Listener::Arrival& arrival : listener_.serve(polled)) {
      guests.remove_if([](const Guest& guest) { return guest.gone.load(); });
      if (guests.size() >= kMostGuests) continue;
      Guest& guest = guests.emplace_back(CopyChannel(std::move(arrival.stream), stop_));
      guest.thread = std::jthread([this, &guest] {
        try {
          serve(guest.channel);
        } catch (const std::exception&) {  // whoever was connected is gone, or no agent
        }
        guest.gone = true;
      });
    }
  }
}

void CopyExchange::serve(CopyChannel& channel) {
  while (!stop_) {
    const json asked = channel.receive(kIdle);
    if (asked.contains("list"))
      answer_list(channel);
    else if (asked.contains("get"))
      answer_get(channel, asked);
    else if (asked.contains("put"))
      take_put(channel, asked);
    else
      throw CommError("it asks for what there is not");
  }
}

void CopyExchange::answer_list(CopyChannel& channel) {
  for (const auto& [step, files] : store_.list()) {
    json names = json::array();
    const auto send = [&, of = step] {
      channel.send({{"step", of}, {"files", names}});
      names.clear();
    };
    for (const std::string& file : files) {
      names.push_back(file);
      if (names.size() == kNamesAMessage) send();
    }
    if (!names.empty()) send();
  }
  channel.send({{"end", true}});
}

void CopyExchange::answer_get(CopyChannel& channel, const json& asked) {
  const auto file = store_.find(number_in(asked, "get", kMostCopyStep), name_in(asked, "file"));
  if (!file) return channel.send({{"none", true}});
  put_file(channel, *file);
}

void CopyExchange::take_put(CopyChannel& channel, const json& said) {
  const std::int64_t step = number_in(said, "put", kMostCopyStep);
  const int of = static_cast<int>(number_in(said, "of", options_.agents - 1));
  std::string failure;
  fs::path into;
  try {
    into = store_.begin_mirror(of, step, number_in(said, "committed", kMostCopyStep));
  } catch (const EnvironmentError& error) {
    failure = error.what();
  }
  std::set<std::string> names;
  for (;;) {
    const json next = channel.receive();
    if (next.contains("end")) break;
    const std::string name = name_in(next, "file");
    try {
      channel.receive_file(into.empty() ? fs::path("/dev/null") : into / name,
                           number_in(next, "bytes", kMostFileBytes));
      names.insert(name);
    } catch (const EnvironmentError& error) {
      if (failure.empty()) failure = error.what();
    }
  }
  if (failure.empty()) store_.finish_mirror(of, step, names);
  channel.send({{"kept", failure.empty()}, {"why", failure}});
}

// ------------------------------------------------------------------------------------------------ mirroring

std::unique_ptr<CopyChannel> CopyExchange::connect(int agent) const {
  const auto endpoint = options_.endpoints.endpoint_of(agent, kOfCopies);
  if (!endpoint) return nullptr;
  std::string why_not;
  try {
    auto stream = control::connect_secured(endpoint->address, endpoint->port, token_,
                                           control::Clock::now() + control::seconds(kReach), why_not);
    return stream ? std::make_unique<CopyChannel>(std::move(*stream), stop_) : nullptr;
  } catch (const std::exception&) {  // another program has the port now
    return nullptr;
  }
}

bool CopyExchange::push_to_next(const CopyStore::Ready& ready) {
  bool again = control::seconds_since(tried_) >= kAgain;
  for (int i = 1; i < options_.agents && !stop_; ++i) {
    if (!next_ && !again) return false;
    if (!next_) {
      tried_ = control::Clock::now();
      next_agent_ = (next_agent_ >= 0 ? next_agent_ + 1 : options_.agent + i) % options_.agents;
      if (next_agent_ == options_.agent) next_agent_ = (next_agent_ + 1) % options_.agents;
      next_ = connect(next_agent_);
      if (!next_) continue;
    }
    try {
      next_->send({{"put", ready.step}, {"of", options_.agent}, {"committed", ready.committed}});
      for (const std::string& file : ready.files) put_file(*next_, ready.folder / file);
      next_->send({{"end", true}});
      const json answer = next_->receive();
      if (answer.value("kept", false)) return true;
      throw CommError(answer.value("why", ""));
    } catch (const EnvironmentError&) {  // the ranks have ended, and another copy takes this one's place
      next_.reset();
      return false;
    } catch (const std::exception& error) {
      if (!stop_)
        options_.tell(fmt::format("copies of the state are not mirrored on host {}: {}", next_agent_, error.what()));
      next_.reset();
      again = true;  // another one may be there
    }
  }
  return false;
}

void CopyExchange::push() {
  const control::Socket watch(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  ::inotify_add_watch(watch.descriptor(), options_.folder.c_str(), IN_MOVED_TO);
  while (!stop_) {
    control::wait_for(watch.descriptor(), POLLIN, control::Clock::now() + control::seconds(kExchangeRoundMs / 1e3));
    char events[4096];
    while (::read(watch.descriptor(), events, sizeof events) > 0) continue;
    const auto ready = store_.ready();
    std::error_code ignored;
    if (!ready || !fs::exists(ready->folder, ignored)) continue;
    fs::remove(options_.folder / kReadyName, ignored);
    const bool mirrored = push_to_next(*ready);
    if (!mirrored && !fs::exists(ready->folder, ignored)) continue;  // its ranks have ended
    if (!mirrored && !stop_ && !told_alone_)
      options_.tell(
          "no other host can be reached to hold copies of the state: losing this host costs the steps since "
          "the last checkpoint");
    told_alone_ = !mirrored;
    try {
      store_.write_mirrored(ready->step);
    } catch (const EnvironmentError& error) {
      options_.tell(error.what());
    }
  }
}

// ------------------------------------------------------------------------------------------------ bringing

void CopyExchange::bring() {
  bringing_ = true;
  bringer_ = std::jthread([this] {
    try {
      bring_all();
    } catch (const std::exception& error) {
      options_.tell(fmt::format("copies of the state are not brought here: {}", error.what()));
    }
    bringing_ = false;
  });
}

void CopyExchange::bring_all() {
  std::map<int, std::unique_ptr<CopyChannel>> others;
  std::map<std::int64_t, std::map<int, std::set<std::string>>> steps;  // by step and agent: the files there
  for (const auto& [step, files] : store_.list()) steps[step][options_.agent] = files;
  for (int agent = 0; agent < options_.agents; ++agent) {
    if (agent == options_.agent) continue;
    try {
      auto channel = connect(agent);
      if (!channel) continue;
      channel->send({{"list", true}});
      for (json said = channel->receive(); !said.contains("end"); said = channel->receive())
        for (const json& name : said.at("files"))
          if (name.is_string() && is_copy_file_name(name))
            steps[number_in(said, "step", kMostCopyStep)][agent].insert(name);
      others[agent] = std::move(channel);
    } catch (const std::exception&) {  // it is lost, and what it has with it
    }
  }
  for (auto step = steps.rbegin(); step != steps.rend() && !stop_; ++step) {
    if (!bring_step(step->first, step->second, others)) continue;
    store_.remove_mirrors();  // which this copy has, too
    return;
  }
}

bool CopyExchange::bring_step(std::int64_t step, const std::map<int, std::set<std::string>>& there,
                              const std::map<int, std::unique_ptr<CopyChannel>>& others) const {
  const auto fetch = [&](const std::string& name) {
    const fs::path here = options_.folder / copy_step_name(step) / name;
    if (size_of_file(here) >= 0) return true;
    if (const auto mirrored = store_.find(step, name)) {
      fs::copy_file(*mirrored, store_.begin_file(), fs::copy_options::overwrite_existing);
      store_.finish_file(step, name);
      return true;
    }
    for (const auto& [agent, files] : there) {
      const auto channel = others.find(agent);
      if (channel == others.end() || !files.contains(name)) continue;
      channel->second->send({{"get", step}, {"file", name}});
      const json answer = channel->second->receive();
      if (answer.contains("none")) continue;
      channel->second->receive_file(store_.begin_file(), number_in(answer, "bytes", kMostFileBytes));
      store_.finish_file(step, name);
      return true;
    }
    return false;
  };
  const auto somewhere = [&](const std::string& name) {
    return std::ranges::any_of(there, [&](const auto& one) { return one.second.contains(name); });
  };
  if (!somewhere("manifest.json") || !fetch("manifest.json")) return false;
  const auto files = CopyStore::files_of(options_.folder / copy_step_name(step) / "manifest.json");
  if (!files) return false;
  for (const auto& [name, bytes] : *files)
    if (!somewhere(name)) return false;
  for (const auto& [name, bytes] : *files)
    if (!fetch(name)) return false;
  return true;
}

}  // namespace lockstep
