// gRPC for JavaScript against a running service: node grpc.mjs <address> <file descriptor set> <model> <parameters>
import { readFileSync } from "node:fs";
import { credentials, loadPackageDefinition, status } from "@grpc/grpc-js";
import { loadFileDescriptorSetFromBuffer } from "@grpc/proto-loader";

const [address, descriptors, model_id, parameters] = process.argv.slice(2);
const definition = loadFileDescriptorSetFromBuffer(readFileSync(descriptors));
const { MLService } = loadPackageDefinition(definition).org.opensearch.protobufs.services;
const stub = new MLService(address, credentials.createInsecure());
const request = { model_id, ml_predict_model_stream_request_body: { parameters: JSON.parse(parameters) } };

const seen = { contents: [], last: [], status: null };
const call = stub.predictModelStream(request);
call.on("data", (response) => {
  for (const results of response.inference_results)
    for (const output of results.output) {
      seen.contents.push(output.data_as_map.content);
      seen.last.push(Boolean(output.data_as_map.is_last));
    }
});
call.on("error", () => {}); // told by "status" as well
call.on("status", ({ code, details }) => {
  seen.status = Object.keys(status).find((name) => status[name] === code);
  seen.details = details;
  console.log(JSON.stringify(seen));
  stub.close();
});
