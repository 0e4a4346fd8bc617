#include "launch/agent_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "comm/error.h"

namespace lockstep {

namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 10> kKinds = {"join",    "beat",  "ended",      "stop", "welcome",
                                                     "refused", "start", "ask_to_end", "kill", "over"};
constexpr int kMostAgents = 4096, kMostRanks = 1 << 20, kMostSlots = 4096;
constexpr std::size_t kMostText = 4096, kMostName = 256;

[[noreturn]] void refuse(std::string_view field) {
  throw CommError(fmt::format("a message between agents whose '{}' makes no sense", field));
}

const Json& field(const Json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end()) refuse(name);
  return *at;
}

std::int64_t number(const Json& object, const char* name, std::int64_t least, std::int64_t most) {
  const Json& value = field(object, name);
  if (!value.is_number_integer() && !value.is_number_unsigned()) refuse(name);
  const std::int64_t n = value.get<std::int64_t>();
  if (n < least || n > most) refuse(name);
  return n;
}

std::string text(const Json& object, const char* name, std::size_t most) {
  const Json& value = field(object, name);
  if (!value.is_string()) refuse(name);
  std::string result = value.get<std::string>();
  if (result.size() > most) refuse(name);
  std::ranges::replace_if(
      result, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return result;
}

bool flag(const Json& object, const char* name) {
  const Json& value = field(object, name);
  if (!value.is_boolean()) refuse(name);
  return value.get<bool>();
}

const Json& list(const Json& object, const char* name, std::size_t most) {
  const Json& value = field(object, name);
  if (!value.is_array() || value.size() > most) refuse(name);
  return value;
}

int whole(const Json& value, int most, const char* name) {
  if (!value.is_number_integer()) refuse(name);
  const std::int64_t n = value.get<std::int64_t>();
  if (n < 0 || n > most) refuse(name);
  return static_cast<int>(n);
}

int rank_of(const Json& value) { return whole(value, kMostRanks, "ranks"); }

LaunchLayout layout_of(const Json& object) {
  LaunchLayout layout{.ranks = static_cast<int>(number(object, "ranks", 1, kMostRanks)),
                      .text = text(object, "layout", kMostName)};
  if (!is_layout_text(layout.text)) refuse("layout");
  return layout;
}

Json json_of(const RankEnd& end) {
  return {{"rank", end.rank}, {"code", end.code}, {"killed", end.killed}, {"found", end.found}};
}

RankEnd end_of(const Json& object) {
  if (!object.is_object()) refuse("ends");
  return {.rank = static_cast<int>(number(object, "rank", 0, kMostRanks)),
          .code = static_cast<int>(number(object, "code", 0, 255)),
          .killed = flag(object, "killed"),
          .found = text(object, "found", kMostText)};
}

Json json_of(const EpochOrder& order) {
  Json places = Json::array();
  for (const EpochOrder::Place& place : order.places) places.push_back({place.rank, place.slot});
  return {{"epoch", order.epoch},     {"ranks", order.layout.ranks}, {"layout", order.layout.text},
          {"resumes", order.resumes}, {"joins", order.joins},        {"master", order.master},
          {"places", places}};
}

EpochOrder order_of(const Json& object) {
  if (!object.is_object()) refuse("order");
  EpochOrder order{.epoch = static_cast<std::uint32_t>(number(object, "epoch", 1, UINT32_MAX)),
                   .layout = layout_of(object),
                   .resumes = flag(object, "resumes"),
                   .joins = flag(object, "joins"),
                   .master = text(object, "master", kMostName)};
  if (!is_host_text(order.master)) refuse("master");
  for (const Json& place : list(object, "places", kMostSlots)) {
    if (!place.is_array() || place.size() != 2) refuse("places");
    order.places.push_back(
        {.rank = whole(place[0], order.layout.ranks - 1, "places"), .slot = whole(place[1], kMostSlots, "places")});
  }
  return order;
}

Json json_of(const Epoch& epoch, const std::set<int>& agents) {
  Json slots = Json::array();
  for (const RankSlot& slot : epoch.slots) slots.push_back({slot.agent, slot.number});
  return {{"epoch", epoch.number},
          {"ranks", epoch.layout.ranks},
          {"layout", epoch.layout.text},
          {"slots", slots},
          {"agents", agents}};
}

void read_plan(const Json& object, AgentMessage& message) {
  if (!object.is_object()) refuse("plan");
  message.plan = {.number = static_cast<std::uint32_t>(number(object, "epoch", 0, UINT32_MAX)),
                  .layout = layout_of(object),
                  .resumes = true};
  for (const Json& slot : list(object, "slots", kMostRanks)) {
    if (!slot.is_array() || slot.size() != 2) refuse("slots");
    message.plan.slots.push_back(
        {.agent = whole(slot[0], kMostAgents, "slots"), .number = whole(slot[1], kMostSlots, "slots")});
  }
  // One slot per rank, or one for all of them; before the first epoch none.
  const std::size_t slots = message.plan.slots.size(), ranks = static_cast<std::size_t>(message.plan.layout.ranks);
  if (message.plan.number == 0 ? slots != 0 : slots != ranks && slots != 1) refuse("slots");
  for (const Json& agent : list(object, "agents", kMostAgents))
    message.agents.insert(whole(agent, kMostAgents, "agents"));
}

}  // namespace

bool is_layout_text(std::string_view text) {
  return (text.empty() || (text.front() >= 'a' && text.front() <= 'z')) && std::ranges::all_of(text, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("=,_+.-/").find(c) != std::string::npos;
         });
}

bool is_host_text(std::string_view text) {
  return !text.empty() && text.front() != '-' && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view(".:%_-").find(c) != std::string::npos;
  });
}

std::string why_not(const EpochOrder& order, int slots) {
  if (order.places.empty()) return "an epoch without ranks";
  std::set<int> ranks, taken;
  for (const EpochOrder::Place& place : order.places) {
    if (place.rank >= order.layout.ranks) return fmt::format("rank {} of {}", place.rank, order.layout.ranks);
    if (place.slot >= slots) return fmt::format("slot {} of a host of {}", place.slot, slots);
    if (!ranks.insert(place.rank).second || !taken.insert(place.slot).second)
      return fmt::format("rank {} or slot {} twice", place.rank, place.slot);
  }
  return "";
}

std::string to_text(const AgentMessage& m) {
  Json object = {{"kind", kKinds[static_cast<std::size_t>(m.kind)]}};
  switch (m.kind) {
    case AgentMessageKind::join:
      object["agent"] = m.agent;
      object["name"] = m.facts.name;
      object["address"] = m.facts.address;
      object["slots"] = m.facts.slots;
      object["process"] = m.facts.process;
      object["version"] = m.version;
      break;
    case AgentMessageKind::beat:
      object["beat"] = m.beat;
      if (!m.agents.empty()) object["plan"] = json_of(m.plan, m.agents);
      break;
    case AgentMessageKind::ended:
      object["epoch"] = m.epoch;
      object["ends"] = Json::array();
      for (const RankEnd& end : m.ends) object["ends"].push_back(json_of(end));
      break;
    case AgentMessageKind::start:
      object["order"] = json_of(m.order);
      break;
    case AgentMessageKind::welcome:
      object["agent"] = m.agent;
      break;
    case AgentMessageKind::refused:
      object["led"] = m.led;
      object["text"] = m.text;
      break;
    case AgentMessageKind::over:
      object["text"] = m.text;
      object["code"] = m.code;
      break;
    case AgentMessageKind::kill:
      object["ranks"] = m.ranks;
      break;
    case AgentMessageKind::stop:
    case AgentMessageKind::ask_to_end:
      break;
  }
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

AgentMessage parse_agent_message(std::string_view bytes) {
  const Json object = Json::parse(bytes, nullptr, false);
  if (!object.is_object()) refuse("message");
  const auto kind = std::ranges::find(kKinds, text(object, "kind", kMostName));
  if (kind == kKinds.end()) refuse("kind");
  AgentMessage m{.kind = static_cast<AgentMessageKind>(kind - kKinds.begin())};
  switch (m.kind) {
    case AgentMessageKind::join:
      m.agent = static_cast<int>(number(object, "agent", 0, kMostAgents));
      m.facts = {.name = text(object, "name", kMostName),
                 .address = text(object, "address", kMostName),
                 .slots = static_cast<int>(number(object, "slots", 0, kMostSlots)),
                 .process = number(object, "process", 0, INT32_MAX)};
      m.version = text(object, "version", kMostName);
      break;
    case AgentMessageKind::beat:
      m.beat = static_cast<std::uint64_t>(number(object, "beat", 0, INT64_MAX));
      if (object.contains("plan")) read_plan(object["plan"], m);
      break;
    case AgentMessageKind::ended:
      m.epoch = static_cast<std::uint32_t>(number(object, "epoch", 0, UINT32_MAX));
      for (const Json& end : list(object, "ends", kMostSlots)) m.ends.push_back(end_of(end));
      break;
    case AgentMessageKind::start:
      m.order = order_of(field(object, "order"));
      break;
    case AgentMessageKind::welcome:
      m.agent = static_cast<int>(number(object, "agent", 0, kMostAgents));
      break;
    case AgentMessageKind::refused:
      m.led = field(object, "led") == true;
      m.text = text(object, "text", kMostText);
      break;
    case AgentMessageKind::over:
      m.text = text(object, "text", kMostText);
      m.code = static_cast<int>(number(object, "code", 0, 255));
      break;
    case AgentMessageKind::kill:
      for (const Json& rank : list(object, "ranks", kMostSlots)) m.ranks.insert(rank_of(rank));
      break;
    case AgentMessageKind::stop:
    case AgentMessageKind::ask_to_end:
      break;
  }
  return m;
}

}  // namespace lockstep
