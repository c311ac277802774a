// One verb of AWS's client against a running service: node sagemaker.mjs <url> <verb> <endpoint>
import {
  InvokeEndpointCommand,
  InvokeEndpointWithResponseStreamCommand,
  SageMakerRuntimeClient,
} from "@aws-sdk/client-sagemaker-runtime";

const [endpoint, verb, EndpointName] = process.argv.slice(2);
const credentials = { accessKeyId: "unused", secretAccessKey: "unused" };
const client = new SageMakerRuntimeClient({ endpoint, region: "us-east-1", credentials, maxAttempts: 1 });
const messages = [{ role: "user", content: "안녕" }];
const asked = (body) => ({ EndpointName, ContentType: "application/json", Body: JSON.stringify(body) });

const verbs = {
  async stream() {
    const answer = await client.send(new InvokeEndpointWithResponseStreamCommand(asked({ messages, stream: true })));
    const parts = [];
    try {
      for await (const event of answer.Body) parts.push(Buffer.from(event.PayloadPart.Bytes).toString());
    } catch (error) {
      return { type: answer.ContentType, body: parts.join(""), error: error.name, message: error.message };
    }
    return { type: answer.ContentType, body: parts.join("") };
  },
  async whole() {
    const answer = await client.send(new InvokeEndpointCommand(asked({ messages })));
    return JSON.parse(Buffer.from(answer.Body).toString()).choices[0].message.content;
  },
};

let answer;
try {
  answer = await verbs[verb]();
} catch (error) {
  answer = { error: error.name, status: error.$metadata?.httpStatusCode, message: error.message };
}
console.log(JSON.stringify(answer));
